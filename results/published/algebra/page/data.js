window.geomix={"kind":"algebra","trainings":[]};

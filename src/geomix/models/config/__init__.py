"""What each model is made from, and how large it is: dataclasses without torch, counts by formula."""

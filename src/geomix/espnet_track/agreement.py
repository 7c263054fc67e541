"""stub"""


def check(**_):
    return {}

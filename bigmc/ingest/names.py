"""placeholder until merged"""
class NameCounter:
    def __init__(self, *a): raise RuntimeError
def merge_names(*a, **k): raise RuntimeError

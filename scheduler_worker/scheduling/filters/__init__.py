"""The filters: which hosts can take an instance. Each class is one rule."""

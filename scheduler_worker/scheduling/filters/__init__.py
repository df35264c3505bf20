"""The filters: each class is one rule about which hosts can take an instance."""

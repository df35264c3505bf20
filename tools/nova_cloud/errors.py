"""What can go wrong with a cloud."""


class CloudFailed(Exception):
    """Raised when the cloud does not do what it was asked to; the message says what it did."""


class NotInstalled(CloudFailed):
    """Raised when Nova or Placement is missing and cannot be installed."""

"""Units that are not part of this process: what they declare, are asked and may answer."""

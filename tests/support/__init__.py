"""What tests share: clocks and private servers. Nothing here tests anything."""

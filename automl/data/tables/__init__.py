"""Tables as files and frames: reading them whole or in chunks, and writing scores and parts."""

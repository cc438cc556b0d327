//! TOML documents with positions: typed access, unknown keys, the nearest valid name.

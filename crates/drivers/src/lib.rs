//! A connection to a database: prepare, execute, drain rows.

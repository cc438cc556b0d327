//! The life of a system under test: create, load, clone, settle, certify.

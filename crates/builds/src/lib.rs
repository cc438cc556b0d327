//! Sources, variants, compiling, the build cache.

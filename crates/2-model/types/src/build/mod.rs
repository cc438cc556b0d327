//! Compiler settings, presets and locations of sources, as plain data.

mod origin;
mod variant;

pub use origin::SourceOrigin;
pub use variant::{
    BoltProfileMethod, BuildType, ConfigureTool, Hardening, Lto, Optimization, Packaging, Pgo,
    UnknownVariant, Variant, VariantOverrides,
};

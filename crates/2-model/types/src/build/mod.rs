//! Compiler settings, presets and locations of sources, as plain data.

mod origin;
mod presets;
mod variant;
mod words;

pub use origin::SourceOrigin;
pub use variant::{UnknownVariant, Variant, VariantOverrides};
pub use words::{
    BoltProfileMethod, BuildType, ConfigureTool, Hardening, Lto, Optimization, Packaging, Pgo,
};

//! How a system is compiled, as plain data: compiler settings, their presets, where a source comes
//! from.

mod origin;
mod presets;
mod variant;
mod words;

pub use origin::SourceOrigin;
pub use variant::{UnknownVariant, Variant, VariantOverrides};
pub use words::{
    BoltProfileMethod, BuildType, ConfigureTool, Hardening, Lto, Optimization, Packaging, Pgo,
};

//! The whole way: from samples to a new layout.

use crate::{Module, OptimizeError, Options, Relayout, Samples, Surroundings};

/// Lays out the hot functions of the modules anew.
///
/// # Errors
/// When nothing hot can be moved, or there is no room for new code.
pub fn optimize(
    _modules: &[&Module],
    samples: &Samples,
    _options: &Options,
    _surroundings: &mut dyn Surroundings,
) -> Result<Relayout, OptimizeError> {
    Err(OptimizeError::NothingHot { samples: samples.total() })
}

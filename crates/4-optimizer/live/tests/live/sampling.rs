//! Samples of test programs.

use std::time::Duration;

use dbdyno_live::{Attachment, SamplingOptions, map_to_original, sample};
use dbdyno_relayout::Samples;

/// Samples a program for a moment. The samples are in original code.
pub fn samples(attachment: &Attachment) -> Samples {
    let sampling = SamplingOptions {
        time: Duration::from_millis(400),
        frequency: 1_999,
        ..SamplingOptions::default()
    };
    let sampled = sample(attachment.process().pid(), false, &sampling, |_| false).unwrap();
    map_to_original(attachment, &sampled.samples)
}

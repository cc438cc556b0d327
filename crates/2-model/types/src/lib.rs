//! Measured data and settings as plain types, shared by measurement, storage and reports: slices,
//! response times, state snapshots, servers, releases, compiler settings, checksums, the identity of a
//! run.

pub mod build;
mod certificate_fingerprint;
mod client_wait;
mod counters;
mod flag_check;
pub mod insert;
mod latencies;
mod matrix;
mod new_layout;
mod release;
mod run_identity;
pub mod server;
mod server_usage;
mod sha256;
mod slice;
mod state_snapshot;
mod work;

pub use certificate_fingerprint::{CertificateFingerprint, InvalidFingerprint};
pub use client_wait::ClientWait;
pub use counters::{Count, Counted, Counter, Counting, Counts, Missing};
pub use flag_check::FlagCheck;
pub use latencies::Latencies;
pub use matrix::{MatrixCell, MatrixLevel};
pub use new_layout::{BlockCounts, NewLayout};
pub use release::{ReleaseFile, ReleaseOrigin, SUITES, suites};
pub use run_identity::{NotARunId, RunId, RunIdentity};
pub use server_usage::ServerUsage;
pub use sha256::{NotASha256, Sha256};
pub use slice::SliceMeasured;
pub use state_snapshot::StateSnapshot;
pub use work::{Metric, Work};

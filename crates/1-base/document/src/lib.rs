//! TOML documents with positions: typed access, unknown keys, the nearest valid name.
//!
//! A [`Document`] holds parsed text and a list of problems. A [`Table`] returns the values of its
//! keys with the requested types. A value that does not fit is added to the document's list and
//! does not stop the reading, so that users see all problems of a file together. [`Problems`]
//! prints them with the affected lines.
//!
//! ```
//! use dbdyno_document::Document;
//!
//! let document = Document::parse("demo.toml", "[schedule]\nslcie = \"50ms\"\n")?;
//! let mut root = document.root();
//! if let Some(mut schedule) = root.table("schedule") {
//!     assert_eq!(schedule.string("slice"), None);
//!     schedule.finish();
//! }
//! root.finish();
//! let problems = document.finish().unwrap_err();
//! assert!(problems.to_string().contains("did you mean `slice`?"));
//! # Ok::<(), dbdyno_document::Problems>(())
//! ```

mod document;
mod problem;
mod table;
mod values;

pub use document::{Document, without_passwords};
pub use problem::{Problem, Problems, Span, Spanned, did_you_mean, nearest};
pub use table::{Number, Setting, SettingList, Table};
pub use values::{BadValue, parse_count, parse_duration, parse_share, parse_size};

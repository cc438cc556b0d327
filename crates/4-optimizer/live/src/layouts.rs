//! The layouts among which the best one is searched for.

use std::ops::Range;

use dbdyno_relayout::{Alignment, FunctionOrder, Options};

/// Maximum number of layouts.
pub const MAX_LAYOUTS: usize = 8;

/// One of several layouts of the same code.
#[derive(Clone, Debug)]
pub struct LayoutCandidate {
    /// How it differs from the default one.
    pub name: &'static str,
    pub options: Options,
    /// Move functions of the file with the most samples only.
    pub only_first_file: bool,
}

impl LayoutCandidate {
    /// The default layout with these options.
    #[must_use]
    pub fn of(options: Options) -> Self {
        Self { name: "default", options, only_first_file: false }
    }

    /// The first `count` layouts, at most [`MAX_LAYOUTS`]: the default one, then those that differ most
    /// often for the better.
    #[must_use]
    pub fn first(count: usize, options: &Options) -> Vec<Self> {
        let change = |name, change: fn(&mut Self)| {
            let mut candidate = Self { name, ..Self::of(options.clone()) };
            change(&mut candidate);
            candidate
        };
        let mut all = vec![
            Self::of(options.clone()),
            change("only functions that gain more than their entry jumps", |it| {
                it.options.only_gaining = true;
            }),
            change("aligned to 16 bytes", |it| it.options.alignment = Alignment::Bytes16),
            change("without libraries", |it| it.only_first_file = true),
            change("functions by hotness", |it| {
                it.options.function_order = FunctionOrder::Hotness;
            }),
            change("aligned to 64 bytes", |it| it.options.alignment = Alignment::Bytes64),
            change("rare blocks cold, aligned to 16 bytes", |it| {
                it.options.warm_share = 0.01;
                it.options.alignment = Alignment::Bytes16;
            }),
            change("blocks in their original order", |it| it.options.reorder_blocks = false),
        ];
        all.truncate(count);
        all
    }

    /// The options for files at these addresses, most samples first.
    pub(crate) fn options_for(&self, files: impl Iterator<Item = Range<u64>>) -> Options {
        let mut options = self.options.clone();
        if self.only_first_file {
            options.exclude.extend(files.skip(1));
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_layout_is_the_default_one() {
        let [only] = &LayoutCandidate::first(1, &Options::default())[..] else {
            panic!("one layout")
        };
        let default = LayoutCandidate::of(Options::default());
        assert_eq!(format!("{only:?}"), format!("{default:?}"));
    }

    #[test]
    fn all_layouts_differ() {
        let all = LayoutCandidate::first(usize::MAX, &Options::default());
        assert_eq!(all.len(), MAX_LAYOUTS);
        for (index, one) in all.iter().enumerate() {
            let text = |it: &LayoutCandidate| format!("{:?}{}", it.options, it.only_first_file);
            assert!(all[..index].iter().all(|other| text(other) != text(one)), "{}", one.name);
        }
    }
}

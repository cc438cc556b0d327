//! Names of functions of the kernel.

use std::fs;

/// The module of functions of the kernel.
pub(crate) const KERNEL: &str = "[k]";

/// The functions of the kernel, by address. Empty if this user may not see them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelSymbols(Vec<(u64, String)>);

impl KernelSymbols {
    pub fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let symbol = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let is_code = words.next()?.eq_ignore_ascii_case("t");
            (is_code && address != 0).then(|| Some((address, words.next()?.to_owned())))?
        };
        let mut all: Vec<(u64, String)> = text.lines().filter_map(symbol).collect();
        all.sort_unstable();
        Self(all)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        self.0.get(after.checked_sub(1)?).map(|(_, name)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_before_an_address_is_found() {
        let text = "ffffffff81000000 T _stext\nffffffff81000100 t do_poll\nffffffff81000180 D data\n\
                    ffffffff81000200 t schedule\t[module]\n0000000000000000 T hidden\n";
        let symbols = KernelSymbols::parse(text);
        assert_eq!(symbols.name(0xffff_ffff_8100_01ff), Some("do_poll"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0200), Some("schedule"));
        assert_eq!(symbols.name(0xffff_ffff_8000_0000), None);
    }
}

//! Tables of virtual functions, as the [Itanium C++ ABI](https://itanium-cxx-abi.github.io/cxx-abi/abi.html#vtable)
//! describes them: the offset to the start of the object, the address of the type information, and the
//! addresses of the functions.
//!
//! They are recognized by the type information, an object that starts with the address of a table of the
//! C++ runtime. Other arrays of function addresses are not: a program may compare these addresses, while
//! those of a virtual table are only called.

use std::collections::{BTreeMap, HashSet};

/// The greatest distance to the start of an object.
const MAX_OBJECT: i64 = 1 << 24;

/// What the loader stores in a word of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RelocatedWord {
    /// The address of something in the module.
    Address(u64),
    /// Type information of another module.
    OtherTypeInfo,
    /// A table of the C++ runtime: the word is the start of type information.
    TypeInfoTable,
    /// Anything else outside of the module.
    Other,
}

impl RelocatedWord {
    /// What a symbol of this name stands for; `address` is `None` if another module defines it.
    pub(crate) fn of_symbol(name: &str, address: Option<u64>) -> Self {
        if name.starts_with("_ZTVN10__cxxabiv1") {
            return Self::TypeInfoTable;
        }
        match address {
            Some(address) => Self::Address(address),
            None if name.starts_with("_ZTI") => Self::OtherTypeInfo,
            None => Self::Other,
        }
    }
}

/// The slots of all virtual tables: the address of the slot, and of the function that it contains.
///
/// `words` are the relocated words of data by address, `unrelocated` reads any other, and `is_function` tells
/// whether a function starts at an address.
pub(crate) fn virtual_slots(
    words: &BTreeMap<u64, RelocatedWord>,
    unrelocated: impl Fn(u64) -> Option<u64>,
    is_function: impl Fn(u64) -> bool,
) -> Vec<(u64, u64)> {
    let starts = words.iter().filter(|(_, word)| **word == RelocatedWord::TypeInfoTable);
    let type_infos: HashSet<u64> = starts.map(|(address, _)| *address).collect();
    let mut slots = Vec::new();
    for (&address, word) in words {
        let is_type_info = match word {
            RelocatedWord::Address(target) => type_infos.contains(target),
            other => *other == RelocatedWord::OtherTypeInfo,
        };
        let before = address.wrapping_sub(8);
        if !is_type_info || words.contains_key(&before) {
            continue;
        }
        let to_start = unrelocated(before).map(u64::cast_signed);
        if !to_start.is_some_and(|offset| (-MAX_OBJECT..=0).contains(&offset)) {
            continue;
        }
        let mut slot = address.wrapping_add(8);
        while let Some(word) = words.get(&slot) {
            match word {
                RelocatedWord::Address(function) if is_function(*function) => {
                    slots.push((slot, *function));
                }
                // A pure virtual function, or one of another module.
                RelocatedWord::Other => {}
                _ => break,
            }
            slot = slot.wrapping_add(8);
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: u64 = 0x100;
    const NAME: u64 = 0x900;
    const FUNCTIONS: std::ops::Range<u64> = 0x1000..0x2000;

    fn slots(words: &[(u64, RelocatedWord)], plain: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let words = words.iter().cloned().collect();
        let plain: BTreeMap<u64, u64> = plain.iter().copied().collect();
        let read = |address| Some(plain.get(&address).copied().unwrap_or(0));
        virtual_slots(&words, read, |address| FUNCTIONS.contains(&address))
    }

    fn address(target: u64) -> RelocatedWord {
        RelocatedWord::Address(target)
    }

    /// Type information of a class with one base class of the same type.
    fn type_info() -> Vec<(u64, RelocatedWord)> {
        vec![
            (TYPE, RelocatedWord::TypeInfoTable),
            (TYPE + 8, address(NAME)),
            (TYPE + 16, address(TYPE)),
        ]
    }

    #[test]
    fn slots_follow_the_type_information() {
        let mut words = type_info();
        words.extend([
            (0x208, address(TYPE)),
            (0x210, address(0x1000)),
            (0x218, RelocatedWord::Other),
            (0x220, address(0x1010)),
            // The table of a base class in the same object.
            (0x230, address(TYPE)),
            (0x238, address(0x1020)),
        ]);
        let found = slots(&words, &[(0x228, 16_u64.wrapping_neg())]);
        assert_eq!(found, [(0x210, 0x1000), (0x220, 0x1010), (0x238, 0x1020)]);
    }

    #[test]
    fn type_information_of_another_module_is_recognized() {
        let words = [(0x208, RelocatedWord::OtherTypeInfo), (0x210, address(0x1000))];
        assert_eq!(slots(&words, &[]), [(0x210, 0x1000)]);
    }

    #[test]
    fn other_function_addresses_are_no_slots() {
        // An array of functions; one behind the address of data; one behind a base class with flags.
        let mut words = type_info();
        words.extend([
            (0x208, address(0x1000)),
            (0x210, address(0x1010)),
            (0x300, address(NAME)),
            (0x308, address(0x1020)),
            (0x408, address(TYPE)),
            (0x410, address(0x1030)),
        ]);
        assert_eq!(slots(&words, &[(0x400, 1 << 32)]), []);
    }

    #[test]
    fn symbols_are_told_apart() {
        let of = |name, defined| RelocatedWord::of_symbol(name, defined);
        let class = "_ZTVN10__cxxabiv117__class_type_infoE";
        assert_eq!(of(class, None), RelocatedWord::TypeInfoTable);
        assert_eq!(of("_ZTI4Item", None), RelocatedWord::OtherTypeInfo);
        assert_eq!(of("_ZTI4Item", Some(7)), address(7));
        assert_eq!(of("__cxa_pure_virtual", None), RelocatedWord::Other);
    }
}

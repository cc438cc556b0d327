//! Names of functions as people write them.

use cpp_demangle::{DemangleOptions, Symbol};

/// What compilers append to names of copies and parts of functions.
const CLONES: [&str; 6] = [".isra.", ".constprop.", ".part.", ".cold", ".lto_priv.", ".llvm."];

/// The name of a function in its language, without arguments and without what compilers append to copies.
pub fn demangled(symbol: &str) -> String {
    let end = CLONES.iter().filter_map(|clone| symbol.find(clone)).min().unwrap_or(symbol.len());
    let symbol = &symbol[..end];
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}");
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let parsed = symbol.starts_with("_Z").then(|| Symbol::new(symbol).ok()).flatten();
    parsed
        .and_then(|parsed| parsed.demangle_with_options(&options).ok())
        .unwrap_or_else(|| symbol.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_arguments_and_no_clones() {
        for (symbol, name) in [
            ("_ZN7handler13ha_index_nextEPh", "handler::ha_index_next"),
            ("_ZN7handler13ha_index_nextEPh.cold", "handler::ha_index_next"),
            ("row_search_mvcc.isra.0.part.3", "row_search_mvcc"),
            ("ExecScan.constprop.0", "ExecScan"),
            ("memcpy", "memcpy"),
            (
                "_ZN4core6option15Option$LT$T$GT$4take17h0123456789abcdefE",
                "core::option::Option<T>::take",
            ),
            ("_Zbroken", "_Zbroken"),
        ] {
            assert_eq!(demangled(symbol), name);
        }
    }
}

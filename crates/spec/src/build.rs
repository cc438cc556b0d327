//! `variant`, `compiler` and `flags` of a candidate: how its system is compiled.

use dbdyno_document::{Problem, Table, did_you_mean};

use crate::Known;
use crate::experiment::Build;

/// The keys that this module reads.
pub const KEYS: [&str; 3] = ["variant", "compiler", "flags"];

/// Reads the keys; `None` where a problem was reported.
pub fn read(table: &mut Table<'_>, known: &Known<'_>) -> Option<Build> {
    table.require("variant");
    let variant = read_variant(table, known);
    let compiler = read_compiler(table);
    let flags = read_flags(table);
    Some(Build { variant: variant?, compiler: compiler?, flags: flags? })
}

fn read_variant(table: &mut Table<'_>, known: &Known<'_>) -> Option<String> {
    let variant = table.string("variant")?;
    if known.variants.contains(&variant.value) {
        return Some(variant.value.to_owned());
    }
    let message = format!("unknown variant `{}`", variant.value);
    let help = did_you_mean(variant.value, known.variants);
    table.report(Problem::new(variant.span, message).help(help));
    None
}

fn read_compiler(table: &mut Table<'_>) -> Option<String> {
    let Some(compiler) = table.string("compiler") else {
        return (!table.has("compiler")).then(|| "gcc".to_owned());
    };
    if compiler.value.is_empty() || compiler.value.contains(char::is_control) {
        let problem = Problem::new(compiler.span, "`compiler` names no compiler");
        table.report(problem.help("write `gcc`, `clang`, a versioned name or a path"));
        return None;
    }
    Some(compiler.value.to_owned())
}

fn read_flags(table: &mut Table<'_>) -> Option<Vec<String>> {
    let Some(flags) = table.strings("flags") else {
        return (!table.has("flags")).then(Vec::new);
    };
    for flag in &flags.value {
        // A compiler takes a word without a dash for the name of a file to compile.
        if !flag.value.starts_with('-') || flag.value.contains(char::is_control) {
            let message = format!("`{}` is not a compiler flag", flag.value);
            let help = "flags start with `-`, and arguments are joined: \"--param=max-inline=9\"";
            table.report(Problem::new(flag.span, message).help(help));
        }
    }
    Some(flags.value.into_iter().map(|flag| flag.value.to_owned()).collect())
}

//! Readers for sections with command lines, comments and LTO options.

use object::{Object, ObjectSection};

use super::{content, name};
use crate::effective::{Family, LtoForm, RecordedCompiler};
use crate::error::ReadError;
use crate::flags::Producer;

/// Command lines in `.GCC.command.line`. gcc writes the same text as in debug information, clang
/// only the command line; its version is then taken from `.comment`.
pub(super) fn command_lines(
    file: &object::File<'_>,
    comments: &[String],
) -> Result<Vec<Producer>, ReadError> {
    let Some(section) = file.section_by_name(".GCC.command.line") else { return Ok(Vec::new()) };
    let data = content(&section)?;
    let clang = of_comments(comments, Family::Clang)
        .unwrap_or(RecordedCompiler { family: Family::Clang, version: String::new() });
    let mut producers = Vec::new();
    for line in data.split(|byte| *byte == 0) {
        let line = String::from_utf8_lossy(line);
        if line.starts_with("GNU ") {
            producers.push(Producer::parse(&line));
        } else if let Some(flags) = Producer::of_clang_command(&line) {
            let compiler = clang.clone();
            producers.push(Producer { compiler, language: None, flags: Some(flags) });
        }
    }
    Ok(producers)
}

/// Maximum number of different comments: one per version of a compiler.
const MAX_COMMENTS: usize = 100;

/// The entries of `.comment`, without duplicates.
pub(super) fn comments(file: &object::File<'_>) -> Result<Vec<String>, ReadError> {
    let Some(section) = file.section_by_name(".comment") else { return Ok(Vec::new()) };
    let data = content(&section)?;
    let mut comments: Vec<String> = Vec::new();
    for comment in data.split(|byte| *byte == 0).filter(|comment| !comment.is_empty()) {
        let comment = name(comment);
        if comments.len() < MAX_COMMENTS && !comments.contains(&comment) {
            comments.push(comment);
        }
    }
    Ok(comments)
}

/// The compiler named in the comments, such as `GCC: (Debian 12.2.0-14) 12.2.0`; clang takes
/// precedence.
pub(super) fn compiler(comments: &[String]) -> Option<RecordedCompiler> {
    let clang = of_comments(comments, Family::Clang);
    let gcc = of_comments(comments, Family::Gcc);
    // Startup files of the C library add gcc's comment to every program.
    clang.or(gcc)
}

fn of_comments(comments: &[String], family: Family) -> Option<RecordedCompiler> {
    comments.iter().find_map(|comment| match family {
        Family::Gcc => {
            let version = comment.strip_prefix("GCC: ")?.rsplit(' ').find(|word| {
                word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.')
            })?;
            Some(RecordedCompiler { family, version: version.to_owned() })
        }
        Family::Clang => {
            let compiler = Producer::parse(comment).compiler;
            (compiler.family == Family::Clang).then_some(compiler)
        }
        _ => None,
    })
}

/// Objects of gcc's link-time optimization: their form and the recorded options.
pub(super) fn gnu_lto(file: &object::File<'_>) -> Option<(LtoForm, Option<Vec<String>>)> {
    let mut form = None;
    let mut options = None;
    for section in file.sections() {
        let Some(name) = section.name().ok().and_then(|name| name.strip_prefix(".gnu.lto_")) else {
            continue;
        };
        // The header: two version numbers of two bytes each, then the slim flag.
        if name.starts_with(".lto.") || name == ".lto" {
            let slim = section.data().ok().and_then(|data| data.get(4).copied());
            form = Some(if slim == Some(0) { LtoForm::Fat } else { LtoForm::Slim });
        } else if name == ".opts" {
            let text = section.data().map(String::from_utf8_lossy).ok()?;
            options = Some(quoted(&text));
        }
        form = form.or(Some(LtoForm::Slim));
    }
    form.map(|form| (form, options))
}

/// Splits zero-terminated, quoted options: `'-O2' '-g'`.
fn quoted(text: &str) -> Vec<String> {
    let text = text.split('\0').next().unwrap_or_default();
    text.split('\'')
        .map(str::trim)
        .filter(|word| word.starts_with('-'))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_options_are_split() {
        assert_eq!(
            quoted("'-fno-openmp' '-O2' '-march=x86-64'\0x"),
            ["-fno-openmp", "-O2", "-march=x86-64"]
        );
        assert!(quoted("").is_empty());
    }

    #[test]
    fn clang_comment_takes_precedence_over_gcc_startup_files() {
        let comments = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        let gcc = comments(&["GCC: (Debian 12.2.0-14+deb12u1) 12.2.0"]);
        assert_eq!(compiler(&gcc).unwrap().to_string(), "gcc 12.2.0");
        let both = comments(&["GCC: (GNU) 13.1.0", "Debian clang version 14.0.6"]);
        assert_eq!(compiler(&both).unwrap().to_string(), "clang 14.0.6");
        assert_eq!(compiler(&comments(&["Linker: LLD 14"])), None);
    }
}

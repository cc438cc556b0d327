//! The outcome of a gate as JUnit XML, which most systems for continuous integration show.

use std::io;

use dbdyno_text::plain;
use quick_xml::Writer;
use quick_xml::events::BytesText;

use super::{Judged, Outcome};

/// The outcome of the run of this name as JUnit XML: a test suite for each rule, with a test case for each comparison. What is
/// not judged is a skipped test.
///
/// # Errors
/// Never: it is written to memory.
pub fn junit(judged: &[Judged<'_>], name: &str) -> io::Result<String> {
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
    xml.create_element("testsuites")
        .with_attribute(("name", plain(name).as_str()))
        .write_inner_content(|xml| judged.iter().try_for_each(|one| suite(xml, one)))?;
    let mut text = String::from_utf8_lossy(&xml.into_inner()).into_owned();
    text.insert_str(0, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    text.push('\n');
    Ok(text)
}

fn suite(xml: &mut Writer<Vec<u8>>, judged: &Judged<'_>) -> io::Result<()> {
    let broken = judged.count(|one| matches!(one, Outcome::Broken(_)));
    let skipped = judged.count(|one| matches!(one, Outcome::NotJudged(_)));
    let rule = plain(&judged.rule.to_string());
    let (all, broken, skipped) =
        (judged.comparisons.len().to_string(), broken.to_string(), skipped.to_string());
    let attributes =
        [("name", rule.as_str()), ("tests", &all), ("failures", &broken), ("skipped", &skipped)];
    xml.create_element("testsuite").with_attributes(attributes).write_inner_content(|xml| {
        for comparison in &judged.comparisons {
            let place = plain(&comparison.place());
            let candidate = plain(&comparison.candidate);
            let case = [("classname", candidate.as_str()), ("name", place.as_str())];
            let case = xml.create_element("testcase").with_attributes(case);
            let words = comparison.words();
            case.write_inner_content(|xml| {
                let (tag, text) = match comparison.outcome {
                    Outcome::Broken(_) => ("failure", ("message", words.as_str())),
                    Outcome::NotJudged(_) => ("skipped", ("message", words.as_str())),
                    Outcome::Kept(_) | Outcome::Unclear(_) => {
                        let text = BytesText::new(&words);
                        xml.create_element("system-out").write_text_content(text)?;
                        return Ok(());
                    }
                };
                xml.create_element(tag).with_attribute(text).write_empty()?;
                Ok(())
            })?;
        }
        Ok(())
    })?;
    Ok(())
}

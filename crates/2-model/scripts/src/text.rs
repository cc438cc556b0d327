//! Lua files, which may have any encoding, as text that can be stored.

use std::borrow::Cow;

/// Each byte that is not of UTF-8 is kept as the private character of this number plus its value. No character of a
/// script has such a number.
const PRIVATE: u32 = 0x10_ff00;

/// The text of a file, from which [`bytes_of`] restores its bytes.
pub fn text_of(file: &[u8]) -> String {
    let mut text = String::with_capacity(file.len());
    for chunk in file.utf8_chunks() {
        text.push_str(chunk.valid());
        let private = |byte: &u8| char::from_u32(PRIVATE + u32::from(*byte));
        text.extend(chunk.invalid().iter().filter_map(private));
    }
    text
}

pub(crate) fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    let byte = |c: char| u32::from(c).checked_sub(PRIVATE).and_then(|byte| u8::try_from(byte).ok());
    if !text.chars().any(|c| byte(c).is_some()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_encoding_are_restored() {
        let all: Vec<u8> = (0..=255).collect();
        let mixed = [&all[..], "naïve €".as_bytes(), b"Andr\xe9", &all[128..]].concat();
        assert_eq!(bytes_of(&text_of(&mixed)), mixed);
        assert_eq!(text_of("naïve".as_bytes()), "naïve");
    }
}

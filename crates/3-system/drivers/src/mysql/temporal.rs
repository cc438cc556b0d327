//! Dates and times: their contribution to the digest, which is the same in binary and in text format.

use super::wire::{Cursor, Malformed};

/// Microseconds in a second, and digits of their fraction.
const MICROS: u64 = 1_000_000;
const MICROS_DIGITS: usize = 6;

/// DATE, DATETIME or TIMESTAMP in binary format: its fields up to the last one that is not 0.
pub(super) fn binary_date_time(value: &[u8]) -> Result<u64, Malformed> {
    let mut cursor = Cursor::new(value);
    let (mut date, mut clock, mut micros) = ([0; 3], [0; 3], 0);
    if !cursor.rest().is_empty() {
        let year = u16::from_le_bytes(cursor.array()?);
        date = [year.into(), cursor.u8()?.into(), cursor.u8()?.into()];
    }
    if !cursor.rest().is_empty() {
        clock = cursor.array::<3>()?.map(u64::from);
    }
    if !cursor.rest().is_empty() {
        micros = u32::from_le_bytes(cursor.array()?).into();
    }
    Ok(combined(date, clock, micros))
}

/// The same in text format, such as `2024-05-06 07:08:09.012345`.
pub(super) fn text_date_time(text: &[u8]) -> u64 {
    let [year, month, day, hours, minutes, seconds] = numbers(text);
    combined([year, month, day], [hours, minutes, seconds], fraction(text))
}

/// TIME in binary format.
pub(super) fn binary_time(value: &[u8]) -> Result<u64, Malformed> {
    let mut cursor = Cursor::new(value);
    if cursor.rest().is_empty() {
        return Ok(0);
    }
    let is_negative = cursor.u8()? != 0;
    let days = u64::from(u32::from_le_bytes(cursor.array()?));
    let [hours, minutes, seconds] = cursor.array::<3>()?.map(u64::from);
    let micros =
        if cursor.rest().is_empty() { 0 } else { u32::from_le_bytes(cursor.array()?).into() };
    let time = combined([0; 3], [days * 24 + hours, minutes, seconds], micros);
    Ok(if is_negative { time.wrapping_neg() } else { time })
}

/// The same in text format, such as `-838:59:59.5`.
pub(super) fn text_time(text: &[u8]) -> u64 {
    let is_negative = text.first() == Some(&b'-');
    let time = combined([0; 3], numbers(&text[usize::from(is_negative)..]), fraction(text));
    if is_negative { time.wrapping_neg() } else { time }
}

/// One number for each value: all that a server can store fit into it. Hours of TIME have up to three
/// digits.
const fn combined(date: [u64; 3], clock: [u64; 3], micros: u64) -> u64 {
    let ([year, month, day], [hours, minutes, seconds]) = (date, clock);
    let days = year.wrapping_mul(13).wrapping_add(month).wrapping_mul(32).wrapping_add(day);
    let hours = days.wrapping_mul(1024).wrapping_add(hours);
    let seconds = hours.wrapping_mul(3600).wrapping_add(minutes * 60 + seconds);
    seconds.wrapping_mul(MICROS).wrapping_add(micros)
}

/// The first numbers in a text, before its fraction; 0 in place of missing ones.
fn numbers<const COUNT: usize>(text: &[u8]) -> [u64; COUNT] {
    let mut numbers = [0; COUNT];
    let whole = text.split(|byte| *byte == b'.').next().unwrap_or_default();
    let fields = whole.split(|byte| !byte.is_ascii_digit());
    for (number, field) in numbers.iter_mut().zip(fields) {
        *number = value(field);
    }
    numbers
}

/// The microseconds after the point.
fn fraction(text: &[u8]) -> u64 {
    let fraction = text.split(|byte| *byte == b'.').nth(1).unwrap_or_default();
    let missing = MICROS_DIGITS.saturating_sub(fraction.len());
    (0..missing).fold(value(fraction), |value, _| value.wrapping_mul(10))
}

fn value(digits: &[u8]) -> u64 {
    let digit = |byte: &u8| u64::from(byte.wrapping_sub(b'0'));
    digits.iter().fold(0u64, |value, byte| value.wrapping_mul(10).wrapping_add(digit(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_dates_and_times_are_equal() {
        let at = |more: &[u8]| [&[0xe8, 0x07, 5, 6], more].concat();
        let cases: [(&[u8], &str); 6] = [
            (&[], "0000-00-00"),
            (&[], "0000-00-00 00:00:00.000000"),
            (&at(&[]), "2024-05-06"),
            (&at(&[]), "2024-05-06 00:00:00.000"),
            (&at(&[17, 8, 9]), "2024-05-06 17:08:09"),
            (&at(&[17, 8, 9, 0x78, 0x3f, 7, 0]), "2024-05-06 17:08:09.475"),
        ];
        for (binary, text) in cases {
            let expected = text_date_time(text.as_bytes());
            assert_eq!(binary_date_time(binary), Ok(expected), "{text}");
        }
        let cases: [(&[u8], &str); 4] = [
            (&[], "00:00:00"),
            (&[0, 0, 0, 0, 0, 7, 8, 9], "07:08:09"),
            (&[1, 34, 0, 0, 0, 22, 59, 59], "-838:59:59.00"),
            (&[1, 0, 0, 0, 0, 0, 0, 1, 0x20, 0xa1, 7, 0], "-00:00:01.500000"),
        ];
        for (binary, text) in cases {
            assert_eq!(binary_time(binary), Ok(text_time(text.as_bytes())), "{text}");
        }
    }

    #[test]
    fn other_values_differ() {
        let texts = ["2024-05-06", "2024-06-05", "2024-05-06 00:00:01", "9999-12-31 23:59:59.9"];
        let mut digests: Vec<u64> = texts.map(|text| text_date_time(text.as_bytes())).to_vec();
        digests
            .extend(["00:00:01", "-00:00:01", "00:01:00"].map(|text| text_time(text.as_bytes())));
        for (number, digest) in digests.iter().enumerate() {
            assert!(!digests[..number].contains(digest), "{number}");
        }
    }

    #[test]
    fn truncated_values_are_malformed() {
        for length in [1, 3, 5, 6, 8, 10] {
            assert_eq!(binary_date_time(&[1; 11][..length]), Err(Malformed), "{length}");
        }
        for length in [1, 7, 9, 11] {
            assert_eq!(binary_time(&[1; 12][..length]), Err(Malformed), "{length}");
        }
    }
}

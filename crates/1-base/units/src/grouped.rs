//! Digits of integers in groups.

/// An integer with a comma after each three digits: `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        let shown = [0, 999, 1_000, 99_999, 1_234_567, u64::MAX].map(grouped);
        assert_eq!(
            shown,
            ["0", "999", "1,000", "99,999", "1,234,567", "18,446,744,073,709,551,615"]
        );
    }
}

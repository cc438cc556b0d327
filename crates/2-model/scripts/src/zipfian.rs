//! The Zipfian distribution of sysbench 1.1: rejection-inversion by Hörmann and Derflinger (1996), as in Apache
//! Commons RNG, with the same order of floating point operations.

/// A distribution of 1 to any number, value k with weight k^-exponent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipfian {
    exponent: f64,
    shortcut: f64,
    integral_of_first: f64,
}

impl Zipfian {
    pub fn new(exponent: f64) -> Self {
        let mut zipfian = Self { exponent, shortcut: 0.0, integral_of_first: 0.0 };
        zipfian.shortcut = 2.0 - zipfian.inverse(zipfian.integral(2.5) - zipfian.weight(2.0));
        zipfian.integral_of_first = zipfian.integral(1.5) - 1.0;
        zipfian
    }

    /// A value from 1 to `most`, with uniform numbers from `uniform`.
    pub fn draw(&self, most: u32, mut uniform: impl FnMut() -> f64) -> u32 {
        let integral_of_all = self.integral(f64::from(most) + 0.5);
        loop {
            let drawn = integral_of_all + uniform() * (self.integral_of_first - integral_of_all);
            let x = self.inverse(drawn);
            // As C converts; beyond the range only by inexact arithmetic.
            let value = ((x + 0.5) as u64 as u32).max(1).min(most);
            let k = f64::from(value);
            if k - x <= self.shortcut || drawn >= self.integral(k + 0.5) - self.weight(k) {
                return value;
            }
        }
    }

    /// The integral of [`Self::weight`], (x^(1 - e) - 1) / (1 - e).
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_by_x((1.0 - self.exponent) * log) * log
    }

    /// x^-e
    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The inverse of [`Self::integral`].
    fn inverse(&self, x: f64) -> f64 {
        let t = (x * (1.0 - self.exponent)).max(-1.0);
        (ln1p_by_x(t) * x).exp()
    }
}

/// Where the series is more exact.
const SMALL: f64 = 1e-8;

/// ln(1 + x) / x
fn ln1p_by_x(x: f64) -> f64 {
    if x.abs() > SMALL {
        x.ln_1p() / x
    } else {
        1.0 - x * (0.5 - x * (0.333_333_333_333_333_3 - 0.25 * x))
    }
}

/// (e^x - 1) / x
fn expm1_by_x(x: f64) -> f64 {
    if x.abs() > SMALL {
        x.exp_m1() / x
    } else {
        1.0 + x * 0.5 * (1.0 + x * 0.333_333_333_333_333_3 * (1.0 + 0.25 * x))
    }
}

use std::mem::MaybeUninit;

/// Context switches and page faults of the calling thread since its start; one system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Voluntary and involuntary context switches.
    pub context_switches: u64,
    /// Minor and major page faults.
    pub page_faults: u64,
}

impl ThreadUsage {
    /// Reads the current values.
    #[must_use]
    pub fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel fills the structure; all zeroes is a valid value of it anyway.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        Self {
            context_switches: (usage.ru_nvcsw + usage.ru_nivcsw).cast_unsigned(),
            page_faults: (usage.ru_minflt + usage.ru_majflt).cast_unsigned(),
        }
    }

    /// The increase since an earlier reading of the same thread.
    #[must_use]
    pub const fn since(self, earlier: &Self) -> Self {
        Self {
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
            page_faults: self.page_faults.saturating_sub(earlier.page_faults),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_context_switches_and_page_faults() {
        let before = ThreadUsage::now();
        std::thread::sleep(std::time::Duration::from_millis(1));
        let memory = vec![1_u8; 64 << 20];
        std::hint::black_box(&memory);
        let used = ThreadUsage::now().since(&before);
        assert!(used.context_switches >= 1);
        assert!(used.page_faults >= 1);
    }
}

//! How much memory a thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts what each thread allocates and frees.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static HIGHEST: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    // A thread that ends has no counters any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get().wrapping_add(bytes));
        let _ = HIGHEST.try_with(|highest| highest.set(highest.get().max(now.get())));
    });
}

// SAFETY: all calls are passed on to the system's allocator. Counting does not allocate: the
// thread-local counters are constants without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size().cast_signed());
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add(-layout.size().cast_signed());
        // SAFETY: the caller's obligations are the same.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size().cast_signed());
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller's obligations are the same.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Calls `work`, and also returns the highest number of bytes that this thread had allocated at the
/// same time, in addition to those before.
pub fn measure_memory<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    HIGHEST.set(before);
    let value = work();
    (value, usize::try_from(HIGHEST.get() - before).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_use_is_measured() {
        let (_, used) = measure_memory(|| {
            drop(vec![0_u8; 1 << 20]);
            vec![1_u8; 1 << 10]
        });
        assert!((1 << 20..1 << 21).contains(&used), "{used}");
    }
}

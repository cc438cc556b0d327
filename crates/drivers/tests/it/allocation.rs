//! How much memory a thread allocates: a server must not decide it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated and not freed; below zero if it freed those of others.
    static CURRENT: Cell<isize> = const { Cell::new(0) };
    /// The maximum of `CURRENT`.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Maximum number of bytes that `work` has allocated at the same time in this thread.
pub fn peak_of(work: impl FnOnce()) -> usize {
    let before = CURRENT.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before).max(0) as usize
}

struct Counting;

fn count(bytes: isize) {
    // Fails in a thread that is exiting, which is not of interest.
    let _ = CURRENT.try_with(|current| {
        current.set(current.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(current.get())));
    });
}

// SAFETY: all calls are forwarded to the system's allocator with the same arguments; counting does not
// allocate, because the counters have no initializer and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as for this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as for this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as for this function.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as for this function.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[test]
fn peak_counts_what_is_allocated_at_the_same_time() {
    let peak = peak_of(|| {
        for _ in 0..10 {
            drop(vec![1_u8; 1 << 20]);
        }
    });
    assert!((1 << 20..2 << 20).contains(&peak), "{peak}");
}

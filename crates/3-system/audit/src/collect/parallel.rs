use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::Progress;

/// Applies `work` to all items on one thread per CPU. The results are in the order of the items.
pub(super) fn map<T: Sync, R: Send>(
    items: &[T],
    watch: &(dyn Fn(Progress) + Sync),
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    let result = work(item);
                    // If a thread panicked, `thread::scope` panics too, so a poisoned lock needs no
                    // handling.
                    results
                        .lock()
                        .unwrap_or_else(|broken| broken.into_inner())
                        .push((index, result));
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    watch(Progress { done, of: items.len() });
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(|broken| broken.into_inner());
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

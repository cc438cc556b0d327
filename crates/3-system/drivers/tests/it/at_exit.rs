//! Values shared by all tests of this program.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// A value that is created by the first test that needs it, in a thread that lives as long as the
/// program, and dropped when the program exits: statics are not dropped otherwise.
pub struct Shared<T: 'static>(Mutex<Option<&'static T>>);

static DROPS: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

impl<T: Send + Sync> Shared<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The value, created by `create` if there is none yet.
    pub fn get(&'static self, create: impl FnOnce() -> T + Send + 'static) -> &'static T {
        let mut value = lock(&self.0);
        value.get_or_insert_with(|| {
            let (sender, receiver) = std::sync::mpsc::channel();
            // The kernel ends a program with the thread that started it; a thread of a test is short-lived.
            thread::spawn(move || {
                sender.send(create()).unwrap();
                loop {
                    thread::park();
                }
            });
            let created = Box::into_raw(Box::new(receiver.recv().expect("the value was created")));
            let address = created as usize;
            // SAFETY: made from a box just now, and dropped only when the program exits and all tests
            // have ended.
            drop_at_exit(move || drop(unsafe { Box::from_raw(address as *mut T) }));
            // SAFETY: as above.
            unsafe { &*created }
        })
    }
}

fn drop_at_exit(drop: impl FnOnce() + Send + 'static) {
    extern "C" fn run() {
        for drop in lock(&DROPS).drain(..) {
            drop();
        }
    }
    let mut drops = lock(&DROPS);
    if drops.is_empty() {
        // SAFETY: the function is valid for the whole life of the program.
        unsafe { libc::atexit(run) };
    }
    drops.push(Box::new(drop));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

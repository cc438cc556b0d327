//! Parameters of prepared statements.

use std::ffi::c_char;

use crate::host::Value;

/// A parameter as the prelude binds it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    kind: i32,
    buffer: *const u8,
    data_len: *const u64,
    max_len: u64,
    is_null: *const c_char,
}

/// Kinds of parameters; all others are integers.
const DOUBLE: i32 = 6;
const TEXT: i32 = 12;

impl Parameter {
    /// What its buffers contain.
    ///
    /// # Safety
    /// The buffers exist and have the size that belongs to the kind.
    #[inline]
    pub(super) unsafe fn value(&self) -> Value<'_> {
        // SAFETY: as the caller guarantees.
        unsafe {
            if *self.is_null != 0 {
                return Value::Null;
            }
            match self.kind {
                TEXT => {
                    let len = (*self.data_len).min(self.max_len) as usize;
                    Value::Text(std::slice::from_raw_parts(self.buffer, len))
                }
                DOUBLE => Value::Double(self.buffer.cast::<f64>().read()),
                _ => Value::Int(self.buffer.cast::<i64>().read()),
            }
        }
    }
}

//! The run directory: every slice, committed as it ends; resume and export.

//! Host facts and checks, CPU sets, CPU clocks, resource usage, hardware counters.

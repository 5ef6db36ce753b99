//! What only shows when the real parts work together.

mod store;

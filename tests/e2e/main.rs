//! Every end-to-end test, in one program: linking it is most of what building it takes.

mod claude;
mod store;
mod tidy;
mod tools;

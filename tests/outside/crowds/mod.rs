//! Many agents on one coordinator, and some that behave badly: the others notice nothing.

mod deadlines;
mod places;
mod rough;
mod siege;
mod unfinished;

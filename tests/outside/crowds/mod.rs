//! Many agents on one coordinator, some of which misbehave without an effect on the others.

mod deadlines;
mod places;
mod rough;
mod siege;
mod small;
mod unfinished;

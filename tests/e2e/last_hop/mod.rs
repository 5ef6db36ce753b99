//! How a message gets into a real session, with the real client in a terminal and a scripted model.

mod absent;
mod hostile;
mod idle;
mod scene;
mod terminal;

//! The delivery of messages into a real session, with the real client in a terminal and a scripted model.

mod absent;
mod asking;
mod busy;
mod channel;
mod contexts;
mod desktop;
mod hostile;
mod hostile_day;
mod idle;
mod neighbours;
mod one_shot;
mod parts;
mod race;
mod relay;
mod renamed;
mod replies;
mod rewind;
mod scene;
mod states;
mod storm;
mod terminal;
mod trouble;

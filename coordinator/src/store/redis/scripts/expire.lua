-- Takes out of one inbox what is past its time, and returns how many that were.
return expire()

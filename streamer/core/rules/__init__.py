"""The rules of one answer: which ids may follow, when it ends, and repeatable chance."""

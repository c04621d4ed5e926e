"""The billboard: rows cast ballots onto the places they list, the noisy tallies are released, rows read them.

`ballots` is what rows cast, in integers; `board` adds the noise and keeps what is released; `reading` is what
a row sees of the board. Everything after the board is a function of one row and of released values.
"""

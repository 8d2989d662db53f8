"""What boosts cost: the ledger and the history in SQLite, and the reports made from them.

Imports `elastio.core`. Everything but `database`, `ledger`, `recorder`, `history_store` and `zone` is pure.
"""

"""The server under one name: each entry here is a link to a room at the top of the repository.

Nothing else lives here; import `tandemq_server.engine`, never `engine`.
"""

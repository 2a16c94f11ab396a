"""Every error of the project, by what the caller can do about it.

    CkptError
    ├── Misused              the request makes no sense as it stands: correct it
    │   └── NotFound         there is no such pipeline, checkpoint, savepoint or file
    ├── Refused              understood, and not done because it would do harm; the text says what would allow it
    ├── LostRace             somebody else got there first: stop, nothing was changed
    │   ├── Fenced           a newer attempt is current
    │   └── LeaseLost        the lease expired, or a waiting trigger took it back
    ├── AlreadyExists        a create-only write met other content under the same name
    ├── TryAgain             nothing was changed, the same call may succeed later
    │   └── Unreachable      the metastore or the storage did not answer
    ├── OutcomeUnknown       it may or may not have happened: read again, delete nothing
    └── Corrupt              bytes are not what they should be
        ├── UnknownVersion   written by a newer version of this package
        └── UnsafePath       a path that would leave its root

A text says what happened, to what, and what to do next.
"""


class CkptError(Exception):
    """The root of all errors that this package raises on purpose."""


class Misused(CkptError):
    """The request makes no sense as it stands."""


class NotFound(Misused):
    """There is no such pipeline, checkpoint, savepoint or file."""


class Refused(CkptError):
    """Understood, and not done because it would do harm."""


class LostRace(CkptError):
    """Somebody else got there first; nothing was changed."""


class Fenced(LostRace):
    """A newer attempt is current."""


class LeaseLost(LostRace):
    """The lease expired, or a waiting trigger took it back."""


class AlreadyExists(CkptError):
    """A create-only write met other content under the same name."""


class TryAgain(CkptError):
    """Nothing was changed; the same call may succeed later."""


class Unreachable(TryAgain):
    """The metastore or the storage did not answer."""


class OutcomeUnknown(CkptError):
    """It may or may not have happened: read again, delete nothing."""


class Corrupt(CkptError):
    """Bytes are not what they should be."""


class UnknownVersion(Corrupt):
    """Written by a newer version of this package."""


class UnsafePath(Corrupt):
    """A path that would leave its root."""

"""The verification rules, by the name that a config gives."""

from specdec.verify import token

RULES = {'token': token.RULE}

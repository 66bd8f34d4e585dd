"""Generated joins and reconfigurations in this process, against the law."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.check_join import check_join
from tests.property.check_local import any_reconfigurer, any_settings
from tests.property.join_cases import join_cases


@settings(max_examples=150)
@given(data=st.data())
def test_pairs_are_the_laws_however_instances_change(data: st.DataObject) -> None:
    check_join(data.draw(join_cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))

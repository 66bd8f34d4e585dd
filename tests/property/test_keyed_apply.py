"""Generated O+ queries in this process, with instances that change all the time, against the law."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.check_keyed_apply import check_keyed_apply
from tests.kit.check_local import any_reconfigurer, any_settings
from tests.kit.effort import examples
from tests.kit.keyed_apply_cases import keyed_apply_cases
from tests.kit.store_cases import store_cases


@settings(max_examples=examples(20))
@given(data=st.data())
def test_the_output_is_the_laws_however_instances_change(data: st.DataObject) -> None:
    check_keyed_apply(data.draw(keyed_apply_cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))


@settings(max_examples=examples(10))
@given(data=st.data())
def test_stores_are_the_laws_however_instances_change(data: st.DataObject) -> None:
    check_keyed_apply(data.draw(store_cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))
